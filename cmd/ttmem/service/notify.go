package service

import (
	"net"
	"os"
)

// Notify notifies systemd of the state of the service, as sd_notify(3) describes: "READY=1",
// "STOPPING=1". It does nothing if systemd did not start the service.
func Notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	// like systemd, net takes a leading @ for an abstract socket
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte(state))
	return err
}

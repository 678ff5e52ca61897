package service

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	tracing "ttmem/tracer/host"
	"ttmem/tracer/place"
)

// A Secret is what clients and the service need to trust each other over TCP: clients send the
// token, and only to a server that has the key of the certificate that they were given. On loopback
// every user can listen at a port that the service does not have yet, or no longer.
type Secret struct {
	token       string
	certificate tls.Certificate
	// Certificate is the path of the certificate, which clients need a copy of.
	Certificate string
}

// The length of a token, in characters: too long to be guessed, short enough for a header.
const minToken, maxToken = 16, 1024

// maxPEM is the maximum length of a file with a key or certificates.
const maxPEM = 1 << 20

// ReadSecret reads the token in a file, which other users must not be able to read or change, and the
// key and the certificate in FILE.key and FILE.crt, which it makes if both are missing.
func ReadSecret(path string) (*Secret, error) {
	text, err := readPrivate(path, maxToken+2)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--token-file %s: %w; `openssl rand -hex 32` makes a token", path, tracing.WithoutPath(err))
	}
	if err != nil {
		return nil, fmt.Errorf("--token-file %s: %w", path, tracing.WithoutPath(err))
	}
	s := &Secret{token: strings.TrimSpace(string(text)), Certificate: path + ".crt"}
	isOther := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(s.token) < minToken || len(s.token) > maxToken || strings.ContainsFunc(s.token, isOther) {
		return nil, fmt.Errorf("--token-file %s: a token is one line of %d to %d ASCII characters without spaces: `openssl rand -hex 32` makes one", path, minToken, maxToken)
	}
	key := path + ".key"
	if isMissing(key) && isMissing(s.Certificate) {
		if err := makeCertificate(key, s.Certificate); err != nil {
			return nil, fmt.Errorf("--token-file %s: making the key and the certificate for HTTPS beside it: %w; docs/serve.md has a command that makes them", path, err)
		}
	}
	if s.certificate, err = loadCertificate(key, s.Certificate); err != nil {
		return nil, fmt.Errorf("--token-file %s: the key and the certificate for HTTPS: %w; without %s and %s, ttmem makes both", path, err, key, s.Certificate)
	}
	return s, nil
}

func isMissing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// readPrivate reads the beginning of a file that only this user, or root, can read and change.
func readPrivate(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	case place.Owner(info) != 0 && !place.Ours(info):
		return nil, fmt.Errorf("it belongs to user %d, who can read and change it: chown %d %s", place.Owner(info), os.Geteuid(), path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("other users may read or change it: chmod 600 %s", path)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// loadCertificate reads a private key, and the certificate that clients have.
func loadCertificate(key, certificate string) (tls.Certificate, error) {
	private, err := readPrivate(key, maxPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", key, tracing.WithoutPath(err))
	}
	f, err := os.OpenFile(certificate, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return tls.Certificate{}, err
	}
	defer f.Close()
	public, err := io.ReadAll(io.LimitReader(f, maxPEM))
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(public, private)
}

// certificateName is a name in each certificate that ttmem makes, which clients of many hosts can ask for.
const certificateName = "ttmem"

// certificateAge is for how long a new certificate is valid: it is not renewed, because clients have
// copies of it.
const certificateAge = 10 * 365 * 24 * time.Hour

// makeCertificate makes a key, and a certificate that cannot vouch for any other.
func makeCertificate(keyPath, certificatePath string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: certificateName},
		DNSNames:    []string{certificateName, "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certificateAge),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if name, err := os.Hostname(); err == nil {
		c.DNSNames = append(c.DNSNames, name)
	}
	public, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writeNew(keyPath, 0o600, &pem.Block{Type: "PRIVATE KEY", Bytes: private}); err != nil {
		return err
	}
	return writeNew(certificatePath, 0o644, &pem.Block{Type: "CERTIFICATE", Bytes: public})
}

func writeNew(path string, mode fs.FileMode, block *pem.Block) error {
	f, err := place.Create(path, os.O_EXCL, mode)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	err = pem.Encode(&text, block)
	if err == nil {
		_, err = f.Write(text.Bytes())
	}
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// config is that of a TLS server.
func (s *Secret) config() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{s.certificate}, MinVersion: tls.VersionTLS12}
}

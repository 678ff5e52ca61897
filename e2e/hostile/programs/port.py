"""Holds a port at addresses, and prints what comes: port.py PORT ADDRESS... A client may speak HTTP, or
HTTPS with a certificate that names the service."""

import socket
import ssl
import subprocess
import sys
import threading

subprocess.run(
    "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ttmem -keyout theirs.key -out theirs.crt"
    " -addext subjectAltName=DNS:ttmem,DNS:localhost,IP:127.0.0.1,IP:::1",
    shell=True, check=True, capture_output=True,
)
secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
secured.load_cert_chain("theirs.crt", "theirs.key")


def answer(c):
    try:
        if c.recv(1, socket.MSG_PEEK) == b"\x16":
            c = secured.wrap_socket(c, server_side=True)
        print(c.recv(1 << 16), flush=True)
        c.sendall(b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n")
    except OSError as e:
        print(e, flush=True)
    c.close()


def hold(family, address):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, int(sys.argv[1])))
    s.listen()

    def accept():
        while True:
            threading.Thread(target=answer, args=(s.accept()[0],), daemon=True).start()

    return threading.Thread(target=accept)


held = [hold(socket.AF_INET6 if ":" in at else socket.AF_INET, at) for at in sys.argv[2:]]
for one in held:
    one.start()
print("attacking", flush=True)

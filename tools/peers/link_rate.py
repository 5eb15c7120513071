"""link_rate.py OWN NEXT BYTES: sends bytes to the next host while the one before sends here; prints the seconds of what came."""
import socket
import sys
import threading
import time

PORT = 29713
PIECE = 256 << 10


def connect(address):
    for _ in range(400):
        try:
            return socket.create_connection((address, PORT), timeout=30)
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise SystemExit(f"nobody listens at {address}")


def send(to, count):
    piece = bytes(PIECE)
    for _ in range(count // PIECE):
        to.sendall(piece)


def main():
    own, following, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with socket.create_server((own, PORT)) as listener, connect(following) as out:
        listener.settimeout(30)
        into = listener.accept()[0]
        sender = threading.Thread(target=send, args=(out, count))
        sender.start()
        place = bytearray(PIECE)
        received = into.recv_into(place)
        began = time.monotonic()
        first = received
        while received < count:
            got = into.recv_into(place)
            if got == 0:
                raise SystemExit("the sender left")
            received += got
        seconds = time.monotonic() - began
        sender.join()
    print(seconds * count / (count - first))


main()

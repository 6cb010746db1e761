"""The service port's server: who is slow or greedy is closed, and nobody else notices. Real sockets on loopback."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from muster.server import web
from tests.server.on_loopback import asks, serving


@pytest.fixture
def serve() -> Iterator[Callable[..., int]]:
    """`serve(arrives=0.3)`: a server with these bounds; its port."""
    with ExitStack() as servers:
        yield lambda **bounds: servers.enter_context(serving(**bounds))


def connected(port: int) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), timeout=20)
    one.settimeout(20)
    return one


def closed(one: socket.socket) -> bool:
    """Waits for the other side to close."""
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab"],
)
def test_a_request_that_does_not_arrive_is_not_waited_for(serve: Callable[..., int], sent: bytes) -> None:
    with connected(serve(arrives=0.2)) as slow:
        slow.sendall(sent)
        assert closed(slow)


def test_a_second_request_on_a_connection_has_to_arrive_too(serve: Callable[..., int]) -> None:
    with connected(serve(arrives=0.2)) as slow:
        assert asks(slow)
        slow.sendall(b"GET / HT")
        assert closed(slow)


def test_one_connection_too_many_is_closed_and_the_others_go_on(serve: Callable[..., int]) -> None:
    port = serve(most=2)
    with connected(port) as one, connected(port) as two:
        assert asks(one)
        assert asks(two)
        with connected(port) as three:
            assert closed(three)
        assert asks(one)


def test_who_has_all_connections_keeps_nobody_else_out(serve: Callable[..., int]) -> None:
    """A few pods that hold what there is, against the kubelet's probe."""
    port = serve(most=3)
    greedy = [connected(port) for _ in range(3)]
    assert all(asks(one) for one in greedy)
    with socket.create_connection(("127.0.0.1", port), timeout=20, source_address=("127.0.0.2", 0)) as probe:
        probe.settimeout(20)
        assert asks(probe)
        assert closed(greedy[0])
        assert all(asks(one) for one in greedy[1:])
        with connected(port) as more:
            assert closed(more), "the greediest gets no place of others, nor a newer one of its own"
    for one in greedy:
        one.close()


def test_of_one_address_there_are_only_so_many(
    serve: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "_local", lambda _: False)
    port = serve(of_one=1)
    with connected(port) as one:
        assert asks(one)
        with connected(port) as two:
            assert closed(two)
    with connected(port) as after:
        assert asks(after), "who has gone counts no more"


def test_loopback_is_many_clients(serve: Callable[..., int]) -> None:
    port = serve(of_one=1)
    with connected(port) as one, connected(port) as two:
        assert asks(one)
        assert asks(two)

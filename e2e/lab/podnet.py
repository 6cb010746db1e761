"""A network for pods of a real node: a network namespace for the node, and an address in it for each pod.

Nothing of the machine's own network changes, and any number of labs have the same addresses. In the node's namespace
the API is where a cluster has it, at 10.96.0.1:443 (the `kubernetes` Service; there is no kube-proxy), and where the
node's kubeconfig looks for it; Muster's service port is where the machine has it. The machine reaches the kubelet's
ports. With `Shape.dns` pods reach each other, by names, too: CoreDNS in the node's namespace, at 10.96.0.10:53, knows
the cluster's headless Services. Nodes are joined then: each has a link to the first one, which routes between them.
Where that one's namespace is made again, they are cut off until theirs are. Not there: other Services, the rest of
the world.

    python podnet.py FD LISTEN=TO ...     as the node's first process: FD is the machine's network namespace,
                                          LISTEN and TO are in:HOST:PORT in the node's namespace or out:HOST:PORT"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

SERVICE = "10.96.0.1"  # of the Service `kubernetes`: the first address of the lab's range
DNS = "10.96.0.10"  # where CoreDNS answers
DOMAIN = "cluster.local"

_PLUGIN = """\
#!/bin/sh
# A CNI plugin: a pair of interfaces, one end in the pod. Both end with the namespaces.
set -e
case "$CNI_COMMAND" in
ADD)
  exec 9> "${0%/*}/lock"; flock 9
  last=$(cat "${0%/*}/last" 2> /dev/null || echo 1)
  number=$((last + 1)); echo "$number" > "${0%/*}/last"
  address="10.88.$((FIRST + number / 250)).$((number % 250 + 2))"
  ip link add "pod$number" type veth peer name eth0 netns "$CNI_NETNS"
  nsenter --net="$CNI_NETNS" sh -c "ip link set lo up && ip addr add $address/32 dev eth0 && ip link set eth0 up &&
    ip route add NODE dev eth0 && ip route add default via NODE"
  ip link set "pod$number" up
  ip route add "$address/32" dev "pod$number"
  echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "'"$CNI_NETNS"'"}],'
  echo '"ips": [{"address": "'"$address"'/32", "interface": 0}]}' ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
esac
"""
LOOPBACK = """\
#!/bin/sh
# containerd asks for it in each pod; the plugin above brings lo up.
case "$CNI_COMMAND" in
ADD) echo '{"cniVersion": "1.0.0", "ips": []}' ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.3.1", "1.0.0"]}' ;;
esac
"""
NETWORK = {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "pods"}]}


def why_not() -> str:
    """Why this machine can't give pods a network, as a sentence; "" where it can."""
    if shutil.which("ip") is None:
        return "a pod network needs ip: apt-get install --no-install-recommends iproute2"
    probe = ["unshare", "--net", "ip", "link", "add", "pod1", "type", "veth", "peer", "name", "pod2"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return f"a pod network needs veth pairs: {done.stderr.strip()}" if done.returncode else ""


def address(number: int) -> str:
    """A node's own, and its pods' gateway; theirs are the others of 10.88.(16 x number).0/20."""
    return f"10.88.{16 * number}.1"


def plugin(number: int) -> str:
    """The node's CNI plugin."""
    return _PLUGIN.replace("FIRST", str(16 * number)).replace("NODE", address(number))


def set_up(number: int, first: int = 0, *, dns: bool = False) -> list[str]:
    """Commands for the node's namespace before anything runs in it. dns: its pods reach each other, by names, and
    those of other nodes; first: the process whose namespace is that of the first node, which is number 0."""
    addresses = (address(number), SERVICE, *([DNS] if dns else []))
    own = ["ip link set lo up", *(f"ip addr add {one}/32 dev lo" for one in addresses)]
    if not dns:
        return own
    own.append("echo 1 > /proc/sys/net/ipv4/ip_forward")
    if number == 0:
        return own
    at, pods = f"node{number}", f"10.88.{16 * number}.0/20"
    there = f"ip link set {at} up && ip route add {pods} via {address(number)} dev {at} onlink"
    return [
        *own,
        # of a process that was here before: its namespace may not be gone yet
        f"nsenter --net=/proc/{first}/ns/net sh -c 'ip link del {at} 2> /dev/null; true'",
        f"ip link add node0 type veth peer name {at} netns {first}",
        "ip link set node0 up",
        f"nsenter --net=/proc/{first}/ns/net sh -c '{there}'",
        f"ip route add 10.88.0.0/16 via {address(0)} dev node0 onlink",
    ]


def corefile(kubeconfig: Path, health: int) -> str:
    """CoreDNS' configuration. Names of no Service are nobody's, at once; health: a port of the node's loopback."""
    return f"""\
{DOMAIN}:53 {{
  bind {DNS}
  errors
  ready 127.0.0.1:{health}
  kubernetes {{
    kubeconfig {kubeconfig} lab
    ttl 1
  }}
}}
.:53 {{
  bind {DNS}
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""


def command(api: int, kubelet: tuple[int, ...], services: tuple[int, ...] = ()) -> list[str]:
    """The node's first process: the machine's namespace is its file 8. services: ports of the machine where pods with
    hostNetwork: true find Muster, as they would without this, and others at SERVICE."""
    to_api = f"out:127.0.0.1:{api}"
    pairs = [f"in:127.0.0.1:{api}={to_api}", f"in:{SERVICE}:443={to_api}"]
    pairs += [f"in:{at}:{port}=out:127.0.0.1:{port}" for port in services for at in ("127.0.0.1", SERVICE)]
    pairs += [f"out:127.0.0.1:{port}=in:127.0.0.1:{port}" for port in kubelet]
    return [sys.executable, str(Path(__file__)), "8", *pairs]


class Sockets:
    """Sockets in either of two namespaces: one belongs to that in which it is made."""

    def __init__(self, outside: int) -> None:
        self._files = {"in": os.open("/proc/self/ns/net", os.O_RDONLY), "out": outside}
        self._libc = ctypes.CDLL(None, use_errno=True)

    def made(self, where: str) -> tuple[socket.socket, tuple[str, int]]:
        """A socket, and the address of in:HOST:PORT."""
        namespace, host, port = where.split(":")
        self._enter(namespace)
        found = socket.socket()
        self._enter("in")  # who enters the node's namespace enters this process'
        found.setblocking(False)
        return found, (host, int(port))

    def _enter(self, namespace: str) -> None:
        if self._libc.setns(self._files[namespace], 0) != 0:
            raise OSError(ctypes.get_errno(), f"setns: {namespace}")

    def listening(self, where: str) -> socket.socket:
        found, address = self.made(where)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(256)
        return found


async def forward(sockets: Sockets, listen: str, to: str) -> None:
    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made, address = sockets.made(to)
        try:
            await asyncio.get_running_loop().sock_connect(made, address)
        except OSError:
            made.close()
            writer.close()
            return
        there = await asyncio.open_connection(sock=made)
        await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))

    server = await asyncio.start_server(taken, sock=sockets.listening(listen))
    await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


async def main(outside: int, pairs: list[str]) -> None:
    sockets = Sockets(outside)
    await asyncio.gather(*(forward(sockets, *pair.split("=")) for pair in pairs))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))

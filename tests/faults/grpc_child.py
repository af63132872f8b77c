"""A gRPC server in a process of its own: `python -m tests.faults.grpc_child OPTION=VALUE …`. It prints its address."""

from __future__ import annotations

import asyncio
import sys

from magnetar_wire.configuration import load
from magnetar_wire.grpc_transport import GrpcSettings, GrpcTransport
from tests.contract.transport_contract import Echo


async def main() -> None:
    transport = GrpcTransport(load(GrpcSettings, flags=sys.argv[1:]))
    listener = await transport.listen("127.0.0.1:0", Echo())
    sys.stdout.write(f"{listener.address}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the parent closes it
    await listener.close()


if __name__ == "__main__":
    asyncio.run(main())

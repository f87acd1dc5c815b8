"""Kubelet's services on Unix sockets. A handler is a function from a request to a response, or to a stream of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from cotenant.errors import Problem
from cotenant.kubernetes.node.protocol import Service

Handler = Callable[[Any, Any], Any]
GRACE_SECONDS = 1.0
KUBELET_HINT = "run it as root on a node of the cluster; --kubelet names kubelet's folder"


class Served:
    """A gRPC server on a socket that it owns: whoever finds the socket finds this server."""

    def __init__(self, socket: Path, services: Mapping[str, tuple[Service, Mapping[str, Handler]]]) -> None:
        self.socket = socket
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=8, thread_name_prefix="kubelet"))
        for service, handlers in services.values():
            self._server.add_generic_rpc_handlers((generic(service, handlers),))
        try:
            socket.parent.mkdir(parents=True, exist_ok=True)
            # One that an agent left behind that was killed.
            with contextlib.suppress(FileNotFoundError):
                socket.unlink()
            self._server.add_insecure_port(f"unix://{socket}")
        except (OSError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) else "no socket can be made there"
            raise Problem(f"cannot listen at {socket}: {why}", KUBELET_HINT) from None
        self._server.start()
        self._made = os.stat(socket).st_ino

    def is_there(self) -> bool:
        """A restarted kubelet removes the sockets of all plugins, which then have to come anew."""
        try:
            return os.stat(self.socket).st_ino == self._made
        except OSError:
            return False

    def stop(self) -> None:
        self._server.stop(GRACE_SECONDS).wait()
        if self.is_there():
            self.socket.unlink()


def generic(service: Service, handlers: Mapping[str, Handler]) -> Any:
    methods = {}
    for name, method in service.methods.items():
        make = grpc.unary_stream_rpc_method_handler if method.streams else grpc.unary_unary_rpc_method_handler
        methods[name] = make(
            handlers[name],
            request_deserializer=method.request.FromString,
            response_serializer=method.response.SerializeToString,
        )
    return grpc.method_handlers_generic_handler(service.name, methods)


def caller(channel: Any, service: Service, name: str) -> Callable[..., Any]:
    """A method of a service that somebody else serves."""
    method = service.methods[name]
    make = channel.unary_stream if method.streams else channel.unary_unary
    called: Callable[..., Any] = make(
        f"/{service.name}/{name}",
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )
    return called

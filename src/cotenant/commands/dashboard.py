"""`cotenant dashboard`: what `top` shows and does, on a page in a browser."""

from __future__ import annotations

from pathlib import Path

import click

from cotenant.options import Number, segment_option


@click.command(
    "dashboard",
    short_help="Watch and steer the tenants in a browser.",
    epilog="""\b
Examples:
  cotenant dashboard
  cotenant dashboard --readonly
  cotenant dashboard --port 0
  ssh -L 8765:127.0.0.1:8765 gpu-machine cotenant dashboard""",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    envvar="COTENANT_DASHBOARD_PORT",
    help="Where it listens; 0: any free port.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    envvar="COTENANT_DASHBOARD_HOST",
    help="The address that it listens at.",
)
@click.option(
    "--public",
    "is_public",
    is_flag=True,
    envvar="COTENANT_DASHBOARD_PUBLIC",
    help="Let --host name an address that other machines reach.",
)
@click.option(
    "--readonly",
    is_flag=True,
    envvar="COTENANT_DASHBOARD_READONLY",
    help="Show everything, and change, pause, resume or kill nothing.",
)
@click.option(
    "--interval",
    "interval_seconds",
    type=Number(0.1, 60),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    envvar="COTENANT_DASHBOARD_INTERVAL",
    help="From one look to the next.",
)
@segment_option
def command(
    port: int,
    host: str,
    is_public: bool,
    readonly: bool,
    interval_seconds: float,
    segment_file: Path | None,
) -> None:
    """Serve one page that shows each GPU with what each class uses of it, live and over the last hour, and its
    jobs: class, promise, share, memory, waits. Its buttons change the class, pause, resume and kill.

    The address that is printed has a token, without which nothing is answered. It ends with Ctrl-C.
    """
    from cotenant import segment
    from cotenant.errors import Problem, narrate
    from cotenant.terminal import say

    try:
        from cotenant.dashboard.server import Server, listen
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise Problem(f"{error.name} is not installed", "pip install 'cotenant[dashboard]'") from None
    from cotenant.top import looking
    from cotenant.top.model import Model

    path = segment.path_to_read(segment_file)
    looking.look(Model(), path)  # what is no segment is an error before there is a page
    with listen(host, port, is_public) as listener:
        server = Server(path, listener, interval_seconds, readonly, [host])

        def tell() -> None:
            say(server.url)
            narrate("open this address in a browser; Ctrl-C ends it")

        server.serve_forever(tell)

"""`covey run`, also called `coveyrun`: starts a command as N ranks."""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any, Dict, Mapping, Optional

from covey import as_horovod
from covey.as_horovod import variables
from covey.cli import completion, elastic_options, horovod, host_options
from covey.cli.horovod import REFUSED
from covey.cli.parser import Parser, package_version, split_command
from covey.cli.say import say
from covey.cli.values import (
    assignment,
    injection,
    method,
    modules,
    node_number,
    number_of_nodes,
    number_of_ranks,
    seconds,
)
from covey.errors import InvalidArgument
from covey.inject import KINDS, parse
from covey.launch import secret
from covey.launch.check import check_command, check_writable_folder, working_folder
from covey.launch.environment import gpus_of
from covey.launch.job import Job
from covey.launch.preload import configured as configured_preload
from covey.launch.rendezvous_handler import start_timeout_s
from covey.launch.signals import Stopped
from covey.launch.spec import JobSpec, LaunchError, Rendezvous
from covey.method import check, full_text
from covey.notice import admits, is_shown

_HELP = "start a command as N ranks, on this host or on several"
_EXAMPLES = """examples:
  {prog} -np 4 python train.py --epochs 5
  {prog} -np 4 --output-dir logs python train.py        also into logs/rank.N/stdout and stderr
  {prog} -np 4 --timeline trace python train.py         one trace per rank, for ui.perfetto.dev
  {prog} -np 4 --method local:local_steps=8 python train.py    models averaged each 8 steps
  {prog} -np 4 --inject delay:50ms@1 --summary python train.py    one random rank late each step
  {prog} -np 4 --preload torch,torch._dynamo python train.py    torch is imported once
  {prog} -np 2 -x LR=0.1 python -m package.module

several hosts, by ssh without a password; the same Covey and working folder on each:
  {prog} -H a:4,b:4 python train.py                     ranks 0 to 3 on a, 4 to 7 on b
  {prog} -H a:4,b:4 --network 10.0.0.0/8 --output-dir logs python train.py
The environment goes along, but for what belongs to a host (HOME, TMPDIR, SSH_*, XDG_*, ...).
--output-dir is written here, --timeline on each host.

one job by several launchers, on one host or several (with the plug-in grpc), each with its -np:
  {prog} -np 2 --nodes 2 --serve a:29500 --secret-file job.secret python train.py
  {prog} -np 2 --join a:29500 --secret-file job.secret python train.py

signals:
  Ctrl-C tells where every rank is, then ends the job within 2 s; a second Ctrl-C ends it at once.
  kill -USR1 PID, the launcher's, tells where every rank is and lets the job go on.

The exit code is that of the rank that failed first (128 + N when signal N killed it); 2 when the
job could not start. OMP_NUM_THREADS becomes cores / N unless you set it. Ranks read no input. They
find their place in RANK, WORLD_SIZE, LOCAL_RANK and HOROVOD_RANK; of one launcher, in MASTER_PORT.
"""

# Options that hardly a script has, and that change what a job does.
_OWN = (
    *("-np", "--method", "--force-method", "--inject", "--keep-going", "--check-nan"),
    *("--quiet", "--summary", "--preload", "--hostfile", "--network-security", "--min-np"),
)


def _describe(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-np", "--num-proc", type=number_of_ranks, metavar="N", help="number of ranks")
    add(
        "--method",
        type=method,
        metavar="METHOD",
        help="how the ranks train together, such as local:local_steps=8 (covey methods lists all)",
    )
    add("--force-method", action="store_true", help="--method wins over the script too")
    add("--summary", action="store_true", help="tell at the end what each rank did and waited for")
    add(
        "--check-nan",
        action="store_true",
        help="refuse gradients with NaN or infinite numbers before they are mixed, and tell whose "
        "they are; costs a pass over them",
    )
    add(
        "--inject",
        type=injection,
        metavar="WHAT",
        help="delay ranks at the end of their steps, such as delay:320ms@2 (two random ranks each "
        "step), slow:10x@1, pause:5s:100@rank2; there are " + ", ".join(KINDS),
    )
    add("--timeline", metavar="DIR", help="write one trace per rank into DIR, and one of all")
    add("--output-dir", metavar="DIR", help="also write DIR/rank.N/stdout and DIR/rank.N/stderr")
    add(
        "-x",
        type=assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="variables",
        help="set an environment variable of the ranks (may be repeated)",
    )
    add(
        "--bind-gpus",
        action="store_true",
        help="each rank sees one of its host's GPUs, as its device 0, in turn",
    )
    add(
        "--keep-going",
        action="store_true",
        help="a rank that fails or is killed does not end the job: the others go on, by methods "
        "that wait for no rank longer than max_wait; the exit code is 0 if one of them ends so",
    )
    add(
        "--preload",
        type=modules,
        metavar="MODULES",
        help="import these once, such as torch,torch._dynamo; each rank of a Python script then "
        "begins as a fork of the process that has: jobs start in less time and memory",
    )
    add("--start-timeout", type=seconds, metavar="S", help="give up when ranks are not up after S")
    add("--verbose", action="store_true", help="tell what the launcher does")
    add(
        "--quiet",
        action="store_true",
        help="no method card, notices, warnings or table (with --summary the table alone): only "
        "errors, and what the ranks print; the ranks get COVEY_LOG_LEVEL=error",
    )
    completion.describe(parser)
    add("--version", action="version", version=f"covey {package_version()}")
    host_options.describe(parser)
    elastic_options.describe(parser)
    _describe_rendezvous(parser)
    _describe_horovods(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(act=_act, parser=parser)


def _describe_horovods(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("as horovodrun spells it").add_argument
    add(
        "--as-horovod",
        action="store_true",
        help="the command's imports still say horovod: they get Covey",
    )
    add("--output-filename", dest="output_dir", metavar="DIR", help="the same as --output-dir")
    horovod.describe(parser)


def _describe_rendezvous(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("one job by several launchers").add_argument
    add(
        "--serve",
        metavar="ADDRESS",
        help="join the others there, and serve it: HOST:PORT (port 0: any free one, which is then "
        "shown), or file:PATH, where the address is written for those that see the same file",
    )
    add("--join", metavar="ADDRESS", help="join the launcher that serves there")
    add("--nodes", type=number_of_nodes, metavar="N", help="number of launchers, for --serve")
    add("--node", type=node_number, metavar="K", help="number of this one, 0 to N-1")
    add(
        "--secret-file",
        metavar="FILE",
        help="the job's secret, the same for all, for your eyes only: 32 drawn bytes, as "
        "hexadecimal digits or base64; --serve makes it if need be",
    )


def _rendezvous(arguments: argparse.Namespace) -> Optional[Rendezvous]:
    """The rendezvous of --serve or --join; None without them."""
    address = arguments.serve or arguments.join
    for name in ("--nodes", "--node", "--secret-file"):
        value = getattr(arguments, name[2:].replace("-", "_"))
        if address is None and value is not None:
            raise LaunchError(f"{name} needs --serve ADDRESS or --join ADDRESS")
    if address is None:
        return None
    if arguments.serve and arguments.join:
        raise LaunchError("--serve and --join: a launcher does one of them")
    if arguments.serve and arguments.nodes is None:
        raise LaunchError("--serve needs --nodes N, the number of launchers of the job")
    file = arguments.secret_file or os.environ.get("COVEY_SECRET_FILE")
    if not file:
        raise LaunchError("--secret-file FILE is missing: the job's secret, the same for all")
    if arguments.serve:
        secret.make(file)
    first = 0 if arguments.serve else -1
    return Rendezvous(
        address=address,
        secret_file=file,
        serve=arguments.serve is not None,
        nodes=arguments.nodes or 0,
        node=first if arguments.node is None else arguments.node,
        timeout_s=arguments.start_timeout or start_timeout_s(),
        network=arguments.network or "",
        security=arguments.network_security,
        keep_going=arguments.keep_going,
    )


def _options(prog: str) -> Dict[str, Any]:
    return {
        "description": f"{_HELP[0].upper()}{_HELP[1:]}. Lines of rank 2 begin with [2].",
        "usage": f"{prog} (-np N | -H HOSTS) [options] COMMAND [ARGUMENTS ...]",
        "epilog": _EXAMPLES.format(prog=prog),
        "refused": REFUSED,
    }


def make_parser(prog: str) -> Parser:
    """The parser of `coveyrun`."""
    parser = Parser(prog=prog, **_options(prog))
    _describe(parser)
    return parser


def add_to(commands: Any) -> None:
    """Adds `run` to the subcommands of `covey`."""
    _describe(commands.add_parser("run", help=_HELP, **_options("covey run")))


def _take_horovods(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Dict[str, str]:
    """The settings of Horovod's variables and flags; coveyrun's own win. Raises LaunchError."""
    found = variables.in_environment(environment)
    taken = variables.take([*found, *arguments.given], environment)
    for flag, value in taken.mapped.items():
        if flag.startswith("--") and getattr(arguments, flag[2:]) is None:
            setattr(arguments, flag[2:], value)
    if is_shown() and not arguments.quiet:
        say(arguments.parser.prog, *taken.lines)
    return {name: value for name, value in taken.mapped.items() if not name.startswith("--")}


def _announce_ignored(arguments: argparse.Namespace, configured: Optional[str]) -> None:
    """--method wins over the variable; says so where they differ."""
    is_announced = is_shown() and not arguments.quiet
    if configured and is_announced and full_text(configured) != full_text(arguments.method):
        ignored = f"COVEY_METHOD={configured} is ignored"
        say(arguments.parser.prog, f"--method {arguments.method} is used, {ignored}")


def _check_configured(text: str) -> None:
    """The variable COVEY_METHOD, which no flag wins over. Raises LaunchError."""
    try:
        check(text)
    except InvalidArgument as error:
        raise LaunchError(f"COVEY_METHOD: {error}") from error


def _tell_of_injection(spec: JobSpec) -> None:
    """Says that a job is delayed on purpose, lest it is taken for a slow one."""
    text = {**os.environ, **spec.extra_env, **spec.settings_env}.get("COVEY_INJECT")
    if not text:
        return
    try:
        schedule = parse(text)
        schedule.check(spec.size)
    except InvalidArgument as error:
        raise LaunchError(f"COVEY_INJECT: {error}") from error
    if not spec.quiet:
        say(spec.program, f"injects {schedule}")


def _spec(arguments: argparse.Namespace) -> JobSpec:
    hosts = host_options.named_or_listed(arguments)
    size = host_options.size_of(arguments, hosts)
    extra_env = dict(text.split("=", 1) for text in arguments.variables if "=" in text)
    command, environment = split_command(arguments.command), {**os.environ, **extra_env}
    settings = _take_horovods(arguments, environment)
    if arguments.start_timeout is not None:
        settings["COVEY_START_TIMEOUT"] = f"{arguments.start_timeout}s"
    if arguments.force_method and arguments.method is None:
        raise LaunchError("--force-method needs --method METHOD")
    configured = environment.get("COVEY_METHOD")
    if arguments.method is not None:
        settings["COVEY_METHOD"] = arguments.method
        settings["COVEY_METHOD_BY"] = "force" if arguments.force_method else "flag"
        _announce_ignored(arguments, configured)
    elif configured:
        _check_configured(configured)
    if arguments.quiet:
        settings["COVEY_LOG_LEVEL"] = "error"
    if arguments.summary:
        settings["COVEY_SUMMARY"] = "always"
    if arguments.check_nan:
        settings["COVEY_CHECK_NAN"] = "1"
    if arguments.as_horovod:
        settings[as_horovod.VARIABLE] = "1"
    if arguments.inject is not None:
        settings["COVEY_INJECT"] = arguments.inject
    elastic = elastic_options.terms(arguments, size, hosts is not None)
    plan = host_options.plan_of(arguments, hosts, size, elastic and elastic.most)
    rendezvous = _rendezvous(arguments)
    return JobSpec(
        command=command,
        size=size,
        output_dir=arguments.output_dir,
        timeline_dir=arguments.timeline,
        extra_env=extra_env,
        settings_env=settings,
        gpus=gpus_of(environment) if arguments.bind_gpus and plan is None else (),
        preload=arguments.preload or configured_preload(environment, command),
        keep_going=arguments.keep_going or elastic is not None,
        verbose=arguments.verbose,
        quiet=not admits({**environment, **settings}),
        program=arguments.parser.prog,
        rendezvous=rendezvous,
        plan=plan,
        elastic=elastic,
    )


def _tell_of_misplaced(spec: JobSpec) -> None:
    """An option of the launcher's behind the command goes to the command; says so, once."""
    words = [word.partition("=")[0] for word in spec.command[1:]]
    misplaced = [word for word in words if word in _OWN]
    if misplaced and not spec.quiet:
        say(
            spec.program,
            f"{misplaced[0]} stands after the command and goes to it; for "
            f"{spec.program} write it before {spec.command[0]}",
        )


def _check_here(spec: JobSpec) -> None:
    """What can be known before a rank starts; of other hosts, their agents look. Raises
    LaunchError."""
    if spec.plan is None:
        check_command(spec.command, spec.size, spec.program, {**os.environ, **spec.extra_env})
        if spec.timeline_dir is not None:
            check_writable_folder("--timeline", spec.timeline_dir)
    elif not spec.command:
        raise LaunchError(f"no command to run: {spec.program} -H a:4,b:4 python train.py")
    else:
        working_folder()  # It is that of the ranks, too.
    if spec.output_dir is not None:
        check_writable_folder("--output-dir", spec.output_dir)


def _act(arguments: argparse.Namespace) -> int:
    """Checks, launches, returns the job's exit code."""
    try:
        spec = _spec(arguments)
        _check_here(spec)
        _tell_of_injection(spec)
        _tell_of_misplaced(spec)
        return Job(spec).run().exit_code
    except LaunchError as error:
        say(arguments.parser.prog, *str(error).splitlines())
        return 2
    except Stopped as stop:
        name = signal.Signals(stop.number).name
        say(arguments.parser.prog, f"{name}: there are no ranks yet")
        return 128 + stop.number

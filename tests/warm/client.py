"""A command in place of the installed one of its name: ``server.py`` runs it in a fork.

A copy stands in the server's folder for each name.  Input, output, environment, signals and exit
status are those of the command; if the client is killed, so is the command.
"""

import json
import os
import signal
import socket
import sys

PACKAGES = ("fairseq_collab", "collab_lab", "fairseq_cli", "data_prep", "collab_common", "submitit")

folder, name = os.path.split(os.path.abspath(__file__))
with open(os.path.join(folder, "settings.json")) as file:
    settings = json.load(file)
program = os.path.join(settings["bin"], name)
command = [program, *sys.argv[1:]]
is_warm = True
if name == "python":
    command = sys.argv[2:] if sys.argv[1:2] == ["-u"] else sys.argv[1:]
    first, second, *_ = [*command, "", ""]
    module = second.split(".")[0] if first == "-m" else ""
    asks_torch = first == "-c" and second.startswith("import sys, torch;")  # as recipes do
    is_warm = module in PACKAGES or first.endswith(".py") or asks_torch
start = {
    name: os.environ[name] for name in os.environ if name.startswith(tuple(settings["variables"]))
}
if not is_warm or start != settings["at_start"]:
    os.execv(program, [program, *sys.argv[1:]])

connection = socket.socket(socket.AF_UNIX)
connection.connect(os.path.join(folder, "socket"))
request = {"command": command, "folder": os.getcwd(), "environment": dict(os.environ)}
content = json.dumps(request).encode() + b"\n"
sent = socket.send_fds(connection, [content], [0, 1, 2])
connection.sendall(content[sent:])
with connection.makefile() as answers:
    pid = int(answers.readline())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: os.kill(pid, number))
    status = os.waitstatus_to_exitcode(int(answers.readline()))
if status < 0:
    if status != -signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)

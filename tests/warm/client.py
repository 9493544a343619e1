"""A command in place of the installed one of its name, run by ``server.py`` where that is the same.

It is copied into the server's folder, once for each name. Its input, output, environment, signals
and exit status are those of the command; killed, it takes the command with it.
"""

import json
import os
import signal
import socket
import sys

PACKAGES = ("fairseq_collab", "fairseq_cli", "data_prep", "collab_common", "submitit")

folder, name = os.path.split(os.path.abspath(__file__))
with open(os.path.join(folder, "settings.json")) as file:
    settings = json.load(file)
arguments = sys.argv[1:]
program = os.path.join(settings["bin"], name)
command = [program, *arguments]
module, is_warm = "", True
if name == "python":
    command = arguments[arguments[:1] == ["-u"] :]
    first, second, *_ = [*command, "", ""]
    module = second if first == "-m" else ""
    is_warm = module.split(".")[0] in PACKAGES or first.endswith(".py")
variables = tuple(settings["variables"])
at_start = {key: value for key, value in os.environ.items() if key.startswith(variables)}
if not is_warm or at_start != settings["at_start"]:
    os.execv(program, [program, *arguments])

plugin = name == "fairseq-collab" or module.startswith(("fairseq_collab", "submitit"))
plugin = plugin or settings["user_dir"] in arguments or "--config-name" in arguments
connection = socket.socket(socket.AF_UNIX)
connection.connect(os.path.join(folder, "plugin" if plugin else "fairseq"))
request = {"command": command, "folder": os.getcwd(), "environment": dict(os.environ)}
request["deaf_to_ctrl_c"] = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
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

"""As much of Ray's command line as a run calls: `start --block` says that it runs, starts a daemon in a session of its
own, and stays.
"""

import subprocess
import sys
import time

assert sys.argv[1] == "start", sys.argv
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)  # a daemon"], start_new_session=True)
print("Ray runtime started.", flush=True)
time.sleep(600)

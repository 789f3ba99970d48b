"""Runs a program under a filter as container engines have them, which kills at the numbers of the system calls that
probes make (335 and 336) like at any that it does not know: `seccomp.py PROGRAM ARGUMENT...`.
"""

import ctypes
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, KILL = 0x7FFF0000, 0x80000000


def main():
    load, equal, give = 0x20, 0x15, 0x06
    code = [
        (load, 0, 0, 0),
        (equal, 1, 0, 335),
        (equal, 0, 1, 336),
        (give, 0, 0, KILL),
        (give, 0, 0, ALLOW),
    ]
    filter_bytes = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(filter_bytes)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "no filter can be set")
    os.execv(sys.argv[1], sys.argv[1:])


main()

#!/usr/bin/env python3
"""torchrun OPTION... PROGRAM, also where torch was built without libuv, as Debian does: neither torchrun nor its ranks ask about that."""
import functools
import os
import runpy
import sys

import torch.distributed as dist

if os.environ.get("USE_LIBUV") == "0":
    dist.TCPStore = functools.partial(dist.TCPStore, use_libuv=False)
    sys.modules["torch.distributed.rendezvous"].TCPStore = dist.TCPStore  # the module: dist.rendezvous is a function

if sys.argv[1] == "--rank":
    del sys.argv[:2]
    runpy.run_path(sys.argv[0], run_name="__main__")
else:
    from torch.distributed.run import main
    main([*sys.argv[1:-1], __file__, "--rank", sys.argv[-1]])

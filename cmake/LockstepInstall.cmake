# Installation and export: find_package(lockstep) and pkg-config.

"""The release that this package belongs to, and the library of the same release."""
__version__ = "0.1.0"
LIBRARY = "liblockstep.so.0.1"

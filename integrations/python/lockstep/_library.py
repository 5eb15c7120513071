"""liblockstep for ctypes: where it is found, and the prototypes of the functions of lockstep.h.

A test compares PROTOTYPES with the header, so the table can be relied on.
"""
import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

from ._version import LIBRARY
from .errors import Error, ErrorCode

CombineFunction = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_void_p)


class Init(ctypes.Structure):
    """lockstep_init_t"""
    _fields_ = [("has_rank", c_int), ("rank", c_int), ("world_size", c_int), ("rendezvous", c_char_p), ("job_id", c_char_p),
                ("secret", c_char_p), ("timeout_ms", c_int64), ("transports", c_char_p)]


class Options(ctypes.Structure):
    """lockstep_options_t"""
    _fields_ = [("timeout_ms", c_int64), ("priority", c_int), ("algorithm", c_char_p), ("scale", c_double),
                ("combine", CombineFunction), ("context", c_void_p)]


class Parameter(ctypes.Structure):
    """lockstep_parameter_t"""
    _fields_ = [("name", c_char_p), ("type", c_uint), ("shape", POINTER(c_size_t)), ("dimensions", c_size_t), ("value", c_void_p),
                ("gradient", c_void_p)]


class ReducerOptions(ctypes.Structure):
    """lockstep_reducer_options_t"""
    _fields_ = [("bucket_bytes", c_size_t), ("first_bucket_bytes", c_size_t), ("own_gradients", c_int), ("sum", c_int),
                ("weighted", c_int), ("find_unused", c_int), ("static_graph", c_int), ("check_finite", c_int),
                ("check_first", c_int), ("no_undo", c_int), ("check_replicas_every", c_uint64), ("hook", c_char_p),
                ("overlap_forward", c_int)]


# Handles are void*; so are the places where a new handle is put, and arrays of counts.
_handle, _new_handle, _data, _counts = c_void_p, POINTER(c_void_p), c_void_p, POINTER(c_size_t)
_type = _op = c_uint
_options, _int_result, _size_result = POINTER(Options), POINTER(c_int), POINTER(c_size_t)
_end = (_options, _new_handle)  # of every collective: options, work

# Functions that return an error code.
PROTOTYPES = {
    "lockstep_allocate": (c_size_t, _new_handle),
    "lockstep_register": (_data, c_size_t),
    "lockstep_deregister": (_data,),
    "lockstep_rendezvous_create": (c_char_p, c_char_p, _new_handle),
    "lockstep_create": (POINTER(Init), _new_handle),
    "lockstep_local_group": (c_int, c_char_p, _new_handle),
    "lockstep_split": (_handle, c_int, c_int, _new_handle),
    "lockstep_finalize": (_handle,),
    "lockstep_abort": (_handle, c_char_p),
    "lockstep_all_reduce": (_handle, _data, _data, c_size_t, _type, _op, *_end),
    "lockstep_reduce": (_handle, _data, _data, c_size_t, _type, _op, c_int, *_end),
    "lockstep_broadcast": (_handle, _data, c_size_t, _type, c_int, *_end),
    "lockstep_scatter": (_handle, _data, _data, c_size_t, _type, c_int, *_end),
    "lockstep_gather": (_handle, _data, _data, c_size_t, _type, c_int, *_end),
    "lockstep_all_gather": (_handle, _data, _data, c_size_t, _type, *_end),
    "lockstep_reduce_scatter": (_handle, _data, _data, c_size_t, _type, _op, *_end),
    "lockstep_all_to_all": (_handle, _data, _data, c_size_t, _type, *_end),
    "lockstep_barrier": (_handle, *_end),
    "lockstep_refuse": (_handle, c_char_p, c_char_p),
    "lockstep_scatter_v": (_handle, _data, _counts, _data, c_size_t, _type, c_int, *_end),
    "lockstep_gather_v": (_handle, _data, c_size_t, _data, _counts, _type, c_int, *_end),
    "lockstep_all_gather_v": (_handle, _data, _data, _counts, _type, *_end),
    "lockstep_reduce_scatter_v": (_handle, _data, _data, _counts, _type, _op, *_end),
    "lockstep_all_to_all_v": (_handle, _data, _counts, _data, _counts, _type, *_end),
    "lockstep_send": (_handle, _data, c_size_t, _type, c_int, c_int, *_end),
    "lockstep_recv": (_handle, _data, c_size_t, _type, c_int, c_int, _options, _int_result, _int_result, _size_result,
                      _new_handle),
    "lockstep_reducer_create": (_handle, POINTER(Parameter), c_size_t, POINTER(ReducerOptions), _new_handle),
    "lockstep_reducer_gradient": (_handle, c_size_t, POINTER(c_void_p)),
    "lockstep_reducer_mark_ready": (_handle, c_size_t),
    "lockstep_reducer_mark_unused": (_handle, c_size_t),
    "lockstep_reducer_wait": (_handle,),
    "lockstep_reducer_wait_gradients": (_handle, c_size_t),
    "lockstep_reducer_no_sync": (_handle, c_int),
    "lockstep_reducer_begin_step": (_handle, c_uint64, _int_result),
    "lockstep_reducer_clip": (_handle, c_double, POINTER(c_double)),
    "lockstep_work_wait": (_handle,),
    "lockstep_work_wait_for": (_handle, c_int64, _int_result),
    "lockstep_work_test": (_handle, _int_result),
    "lockstep_work_status": (_handle, _int_result, _int_result, _size_result),
}

# Functions that return something else: what they return, and their arguments.
PLAIN_PROTOTYPES = {
    "lockstep_last_error": (c_char_p,),
    "lockstep_last_culprit": (c_int,),
    "lockstep_version": (c_char_p,),
    "lockstep_type_size": (c_size_t, _type),
    "lockstep_free": (None, c_void_p),
    "lockstep_rendezvous_address": (c_char_p, _handle),
    "lockstep_rendezvous_free": (None, _handle),
    "lockstep_comm_free": (None, _handle),
    "lockstep_rank": (c_int, _handle),
    "lockstep_size": (c_int, _handle),
    "lockstep_describe": (c_char_p, _handle),
    "lockstep_state": (c_int, _handle),
    "lockstep_reducer_free": (None, _handle),
    "lockstep_reducer_report": (c_char_p, _handle),
    "lockstep_work_free": (None, _handle),
}


def _load():
    package = Path(__file__).parent
    # In a wheel it lies in this package; where CMake built or installed it, two folders up; else the loader looks.
    for place in (package / LIBRARY, package.parents[1] / LIBRARY, LIBRARY):
        try:
            return ctypes.CDLL(str(place))
        except OSError as error:
            if isinstance(place, Path) and place.exists():
                raise ImportError(f"{place} cannot be loaded: {error}") from error
    raise ImportError(f"{LIBRARY} is neither in {package} nor in {package.parents[1]}, and the loader does not find it: "
                      "install lockstep, or name its folder in LD_LIBRARY_PATH")


def _raise_error(code, _function, arguments):
    del arguments  # Or the handles among them would live as long as the traceback.
    if code:
        raise Error(ErrorCode(code), library.lockstep_last_error().decode(errors="replace"), library.lockstep_last_culprit())


def _declare(functions):
    for name, arguments in PROTOTYPES.items():
        function = getattr(functions, name)
        function.restype, function.argtypes, function.errcheck = c_int, arguments, _raise_error
    for name, (result, *arguments) in PLAIN_PROTOTYPES.items():
        function = getattr(functions, name)
        function.restype, function.argtypes = result, arguments
    return functions


library = _declare(_load())

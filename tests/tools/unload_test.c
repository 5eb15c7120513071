/* unload_test LIBRARY: a program that unloads the library keeps it, for its threads run on: they wait in the
 * kernel, and would return to code that is no longer there. */
#include <dlfcn.h>
#include <stdio.h>

#include "lockstep/lockstep.h"

static int fail(const char* what) {
  fprintf(stderr, "%s\n", what);
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return fail("which library?");
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fail(dlerror());
  __typeof__(lockstep_create)* const create = (__typeof__(lockstep_create)*)dlsym(library, "lockstep_create");
  __typeof__(lockstep_comm_free)* const comm_free =
      (__typeof__(lockstep_comm_free)*)dlsym(library, "lockstep_comm_free");
  if (create == NULL || comm_free == NULL) return fail(dlerror());
  const lockstep_init_t alone = {.has_rank = 1, .rank = 0, .world_size = 1};
  lockstep_comm_t group = NULL;
  if (create(&alone, &group) != LOCKSTEP_OK) return fail("a group of one could not be made");
  comm_free(group);
  dlclose(library);
  return dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != NULL ? 0
                                                         : fail("the library is gone, its threads are not");
}

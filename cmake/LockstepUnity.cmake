# Half of the build's work is done once per file: headers are read, templates made. So the files of a target are compiled as one.
option(LOCKSTEP_UNITY_BUILD "Compile folders, not files: half the time, but a whole folder after each change" ON)
set(CMAKE_UNITY_BUILD ${LOCKSTEP_UNITY_BUILD})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)

# lockstep_compile_by_folder(TARGET): of a target with several folders, the files of each. So within a folder a name means one
# thing, also in anonymous namespaces. Called when all sources have been added.
function(lockstep_compile_by_folder target)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE path)
    cmake_path(GET path PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(MAKE_C_IDENTIFIER ${folder} group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()

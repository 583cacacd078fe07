include(GoogleTest)

# millrace_test(NAME SOURCES a.cpp… LIBRARIES x… [LABELS l] [DEFINITIONS D=…] [TIMEOUT seconds])
# One executable of GoogleTest cases. MILLRACE_TEST_DATA is the folder of golden files.
function(millrace_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBRARIES;LABELS;DEFINITIONS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gtest_main)
  target_compile_options(${name} PRIVATE -O1) # they run for seconds and compile for minutes
  target_compile_definitions(${name} PRIVATE
    MILLRACE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/golden" ${ARG_DEFINITIONS})
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABELS) # an empty value would vanish on its way, and LABELS take the next word
    list(APPEND properties LABELS ${ARG_LABELS})
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES ${properties})
endfunction()

# millrace_fuzz(NAME SOURCES a.cpp… LIBRARIES x…): a libFuzzer target; clang only.
function(millrace_fuzz name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} -fsanitize=fuzzer)
endfunction()

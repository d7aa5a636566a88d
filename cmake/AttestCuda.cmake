# SPDX-License-Identifier: Apache-2.0
# The CUDA kernels, where a CUDA compiler is found; without one everything else still builds.
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  add_subdirectory(cuda)
else()
  message(STATUS "No CUDA compiler found: cuda/ is not built")
endif()

# SPDX-License-Identifier: Apache-2.0
# What find_package(attest) gives a project with a kernel: attest::abi, the header to build against; attest::attest, the
# command; and attest_add_gate().
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(attest_abi INTERFACE)
set_target_properties(attest_abi PROPERTIES EXPORT_NAME abi)
target_include_directories(attest_abi INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/attest>)
install(TARGETS attest_abi attest EXPORT attest-targets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES reference/problem/kernel_abi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attest)

set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/attest)
install(EXPORT attest-targets NAMESPACE attest:: DESTINATION ${folder})
configure_package_config_file(cmake/attest-config.cmake.in ${PROJECT_BINARY_DIR}/attest-config.cmake INSTALL_DESTINATION ${folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/attest-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attest-config.cmake ${PROJECT_BINARY_DIR}/attest-config-version.cmake cmake/AttestAddGate.cmake
        DESTINATION ${folder})

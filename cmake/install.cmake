# SPDX-License-Identifier: Apache-2.0
# `cmake --install` gives another project `find_package(halfbyte)` and the target halfbyte::halfbyte.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(layers GLOBAL PROPERTY HALFBYTE_LAYERS)
list(REMOVE_ITEM layers halfbyte_server)  # the command's alone: no header of it is public
add_library(halfbyte INTERFACE)
target_link_libraries(halfbyte INTERFACE halfbyte_moe halfbyte_engine)
set_target_properties(halfbyte PROPERTIES EXPORT_NAME halfbyte)
install(TARGETS halfbyte ${layers} EXPORT halfbyteTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/halfbyte)
install(TARGETS halfbyte_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/halfbyte DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT halfbyteTargets NAMESPACE halfbyte:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/halfbyte)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/halfbyteConfig.cmake.in
  ${PROJECT_BINARY_DIR}/halfbyteConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/halfbyte)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/halfbyteConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/halfbyteConfig.cmake ${PROJECT_BINARY_DIR}/halfbyteConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/halfbyte)

#Included by CMakeLists.txt : the client's side of the software GPU (softgpu_engine, linked into its libraries) and the
#device process(softgpud), which is found beside the library that starts it.
add_library(softgpu_engine STATIC engine.cpp engine_connection.cpp engine_start.cpp machine.cpp mps_client.cpp)
target_include_directories(softgpu_engine PUBLIC ${NATIVE})
target_link_libraries(softgpu_engine PUBLIC device_model Threads::Threads ${CMAKE_DL_LIBS})
#Engine threads run code of the library : it must stay mapped until the process ends.
target_link_options(softgpu_engine INTERFACE -Wl,-z,nodelete)

add_executable(softgpud softgpud.cpp softgpud_server.cpp)
target_include_directories(softgpud PRIVATE ${NATIVE})
target_link_libraries(softgpud PRIVATE device_model)
target_link_options(softgpud PRIVATE -static-libstdc++ -static-libgcc)

install(TARGETS softgpud RUNTIME DESTINATION ${NATIVE_DESTINATION}/softgpu)
file(GLOB SOFTGPU_DEVICES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/devices/*.gpu)
# The build folder works as it is: softgpu/ and devices/ side by side, as installed.
foreach(device ${SOFTGPU_DEVICES})
  get_filename_component(name ${device} NAME)
  configure_file(${device} ${CMAKE_CURRENT_BINARY_DIR}/../devices/${name} COPYONLY)
endforeach()
install(FILES ${SOFTGPU_DEVICES} DESTINATION ${NATIVE_DESTINATION}/devices)

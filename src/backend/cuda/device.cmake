# The library dat_cuda_device: the CUDA backend and its kernels, with the toolkit's nvcc and cuDNN.
find_package(CUDAToolkit 12 REQUIRED)
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  # All that this project is for and this toolkit still builds; newer GPUs translate the last one when they start.
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90)
  if(CUDAToolkit_VERSION VERSION_LESS 13)
    list(PREPEND CMAKE_CUDA_ARCHITECTURES 60-real 70-real)
  endif()
endif()
enable_language(CUDA)
# nvcc 12 knows C++20, which CMake 3.25 does not know.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)
include(${CMAKE_CURRENT_LIST_DIR}/cudnn.cmake)
if(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
  message(FATAL_ERROR "cuDNN was not found: set CUDNN_ROOT in the environment to the folder that has its include and lib")
endif()
add_library(CUDNN::cudnn UNKNOWN IMPORTED)
set_target_properties(CUDNN::cudnn PROPERTIES IMPORTED_LOCATION ${CUDNN_LIBRARY}
                      INTERFACE_INCLUDE_DIRECTORIES ${CUDNN_INCLUDE_DIR})
add_library(dat_cuda_device OBJECT ${DAT_CUDA_SOURCES} ${CMAKE_SOURCE_DIR}/kernels/cuda.cu)
set_target_properties(dat_cuda_device PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 7)
string(REPLACE ";" ", " DAT_ARCHITECTURES_TEXT "${CMAKE_CUDA_ARCHITECTURES}")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/backend/cuda/backend.cpp PROPERTIES COMPILE_DEFINITIONS
                            "DAT_CUDA_ARCHITECTURES=\"${DAT_ARCHITECTURES_TEXT}\"")
target_include_directories(dat_cuda_device PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(dat_cuda_device PRIVATE dat_kernels CUDA::cudart CUDA::cublas CUDNN::cudnn)
target_compile_options(dat_cuda_device PRIVATE
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${DAT_WERROR}>>:-Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Werror>)
# The whole program as a library, with it.
add_library(dat_cuda INTERFACE)
target_sources(dat_cuda INTERFACE $<TARGET_OBJECTS:dat_cuda_device>)
target_link_libraries(dat_cuda INTERFACE dat_core CUDA::cudart CUDA::cublas CUDNN::cudnn)

# cuDNN, beside the CUDA toolkit that was found: CUDNN_INCLUDE_DIR and CUDNN_LIBRARY, where it is.
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ENV CUDNN_ROOT ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 libcudnn.so.8 HINTS ENV CUDNN_ROOT ${CUDAToolkit_LIBRARY_DIR}
             PATH_SUFFIXES lib lib64)

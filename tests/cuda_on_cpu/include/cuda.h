// What CUDA's own headers would bring; the text of a kernel is compiled behind device.h.
#pragma once
#include "device.h"

#pragma once

#include "device/api.h"

int share(void* memory, bluefog_handle* handle);
int openShared(const bluefog_handle* handle, void** memory);
int closeShared(void* memory);

#pragma once

#include "device/api.h"

int createStream(bluefog_stream* stream);
int destroyStream(bluefog_stream stream);
int waitForStream(bluefog_stream stream);
int ignoreCaptures();
int streamIsCapturing(bluefog_stream stream, int* is_capturing);

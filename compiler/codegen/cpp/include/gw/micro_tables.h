// The microkernels of micro.h for a whole library: exactly one of its translation units includes this.
#pragma once
#define GW_TABLES_APART
#include "micro.h"

namespace gw GW_HIDDEN {

const MicroTable micro_table = micro_detail::make<kMR, false>();
const MicroTable skinny_table = micro_detail::make<kSkinny, true>();

}  // namespace gw

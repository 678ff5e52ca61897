// Names of the vector unit that declarations mention. The functions that use it have no bodies here:
// see without_vectors.
#pragma once

#include <cstdint>

#define sfpi_inline inline

namespace sfpi {
struct Vector {
    template <class... T>
    constexpr Vector(T...) {}
};
struct vFloat : Vector { using Vector::Vector; };
struct vFloat16a : Vector { using Vector::Vector; };
struct vFloat16b : Vector { using Vector::Vector; };
struct vInt : Vector { using Vector::Vector; };
struct vUInt : Vector { using Vector::Vector; };
struct vUInt16 : Vector { using Vector::Vector; };
struct vMag : Vector { using Vector::Vector; };
struct vSMag : Vector { using Vector::Vector; };
struct vSMag16 : Vector { using Vector::Vector; };
struct vBool : Vector { using Vector::Vector; };
enum class RoundMode { Nearest, NearestStochastic };
enum class DataLayout { Default, I32, U16, U32, SM32, F32, FSrcB };
enum class LRegs { LReg0, LReg1, LReg2, LReg3, LReg4, LReg5, LReg6, LReg7 };
}  // namespace sfpi

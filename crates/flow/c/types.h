// Integer types, byte order and the few words for compilers that the other files use. Nothing here includes a header: the decisions
// compile for the kernel (clang -target bpf) and for any machine without a C library.

#pragma once

typedef __UINT8_TYPE__ u8;
typedef __UINT16_TYPE__ u16;
typedef __UINT32_TYPE__ u32;
typedef unsigned long long u64;

#define INLINE static inline __attribute__((always_inline))

// The verifier follows unrolled loops fastest. Natively a loop is a loop.
#ifdef __bpf__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif

// A map value with a lock begins with this, whose name the kernel knows.
#ifndef __bpf__
struct bpf_spin_lock {
	u32 val;
};
#endif

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BE16(value) __builtin_bswap16(value)
#define BE32(value) __builtin_bswap32(value)
#else
#define BE16(value) ((u16)(value))
#define BE32(value) ((u32)(value))
#endif

// One access to memory that another processor may be writing to.
#define READ_ONCE(place) (*(const volatile __typeof__(place) *)&(place))
#define WRITE_ONCE(place, value) (*(volatile __typeof__(place) *)&(place) = (value))

// Keeps the compiler from moving loads across. Programs in the kernel have 512 bytes of stack.
#define BARRIER() __asm__ volatile("" ::: "memory")

// Makes the kernel's verifier discard what it knows of an integer, by two exclusive ors with 32 bits of memory whose value it does not
// know. The verifier follows each value that a branch leaves through all later code: a dozen decisions would be thousands of paths. After
// this, states that differ in this value alone compare equal. Bounds of the value have to be checked again afterwards.
#ifdef __bpf__
#define FORGET(value, unknown)                                                       \
	do {                                                                         \
		u64 mask = READ_ONCE(unknown);                                       \
		__asm__ volatile("%0 ^= %1\n%0 ^= %1" : "+r"(value) : "r"(mask));    \
	} while (0)
#else
#define FORGET(value, unknown)
#endif

// Times are in ns of CLOCK_MONOTONIC, or of the simulator's clock.
#define MS 1000000ULL

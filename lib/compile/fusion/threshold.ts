/** From where on calls are fused. */

/**
 * The elements below which the CPU is as fast op by op: values between stay in its cache anyway.
 * Tests lower it, so that they fuse small tensors, too.
 */
export const fusionThreshold = { leastOnCpu: 4096 };

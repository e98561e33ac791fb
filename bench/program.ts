/** Starts and ends programs that measure. */
import { cuda, ShardwiseError } from '../lib/index.js';

/** Runs a program. An error of the library is printed without a stack, with exit status 1. */
export async function runProgram(main: () => void | Promise<void>): Promise<void> {
  try {
    await main();
  } catch (error) {
    if (
      !(error instanceof ShardwiseError || (error instanceof Error && error.constructor === Error))
    )
      throw error;
    console.error(error.message);
    process.exit(1);
  }
}

/** @throws DeviceError that says why no GPU can be used and what to do */
export function requireGpu(): void {
  if (!cuda.isAvailable()) cuda.getDeviceProperties();
}

/** Environment variables of the CUDA backend with unknown values are reported, not ignored. */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import { checkVariables } from '../../lib/cuda/variables.js';
import { ArgumentError } from '../../lib/index.js';

/** What it warns of. */
function warningsOf(environment: Record<string, string>): string[] {
  const { emitWarning } = process;
  const texts: string[] = [];
  process.emitWarning = ((text: string) => void texts.push(text)) as typeof process.emitWarning;
  try {
    checkVariables(environment);
  } finally {
    process.emitWarning = emitWarning;
  }
  return texts;
}

describe('the environment variables of the CUDA backend', () => {
  it('are accepted with known words, or unset', () => {
    const known: Record<string, string>[] = [
      {},
      { SHARDWISE_MATMUL: '', SHARDWISE_DEBUG: '' },
      { SHARDWISE_MATMUL: 'own' },
      { SHARDWISE_MATMUL: 'cublaslt' },
      { SHARDWISE_DEBUG: 'matmul,' },
    ];
    for (const environment of known) assert.deepEqual(warningsOf(environment), []);
  });

  it('are refused with the valid names if the kernel choice is unknown', () => {
    assert.throws(
      () => checkVariables({ SHARDWISE_MATMUL: 'onw' }),
      (error: Error) =>
        error instanceof ArgumentError &&
        error.message === "SHARDWISE_MATMUL: expected 'own' or 'cublaslt', got 'onw'",
    );
  });

  it('cause a warning if they have no effect', () => {
    assert.deepEqual(warningsOf({ SHARDWISE_DEBUG: 'matmul,mamtul, x' }), [
      "SHARDWISE_DEBUG: expected words of matmul, got 'mamtul', ' x'",
    ]);
  });
});

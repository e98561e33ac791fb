/** Words of the environment that mean nothing are not passed over in silence. */
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

describe('variables of the CUDA part', () => {
  it('are taken with the words that there are, or with none', () => {
    const known: Record<string, string>[] = [
      {},
      { SHARDWISE_MATMUL: '', SHARDWISE_DEBUG: '' },
      { SHARDWISE_MATMUL: 'own' },
      { SHARDWISE_MATMUL: 'cublaslt' },
      { SHARDWISE_DEBUG: 'matmul,' },
    ];
    for (const environment of known) assert.deepEqual(warningsOf(environment), []);
  });

  it('are refused where who computes is named wrongly, with the names there are', () => {
    assert.throws(
      () => checkVariables({ SHARDWISE_MATMUL: 'onw' }),
      (error: Error) =>
        error instanceof ArgumentError &&
        error.message === "SHARDWISE_MATMUL: expected 'own' or 'cublaslt', got 'onw'",
    );
  });

  it('are warned of where there is nothing such to tell', () => {
    assert.deepEqual(warningsOf({ SHARDWISE_DEBUG: 'matmul,mamtul, x' }), [
      "SHARDWISE_DEBUG: there is nothing to tell of 'mamtul', ' x'; the words are: matmul",
    ]);
  });
});

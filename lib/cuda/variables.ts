/**
 * The words of variables that native code reads: it takes those it knows, so others are told of
 * here, before a GPU is first used.
 */
import { ArgumentError } from '../core/errors.js';
import { shown } from '../core/options.js';

type Environment = Readonly<Record<string, string | undefined>>;

/** Who computes matrix products (matmul.cu), and what can be told of (matmul_table.cu). */
const ROUTES = ['own', 'cublaslt'];
const TOLD = ['matmul'];

/**
 * @throws ArgumentError for a choice that there is not. Of a word that would only print something,
 * it warns.
 */
export function checkVariables(environment: Environment = process.env): void {
  const { SHARDWISE_MATMUL: route, SHARDWISE_DEBUG: debug = '' } = environment;
  if (route && !ROUTES.includes(route)) {
    throw new ArgumentError(
      `SHARDWISE_MATMUL: expected ${ROUTES.map(shown).join(' or ')}, got ${shown(route)}`,
      { variable: 'SHARDWISE_MATMUL', value: route },
    );
  }
  const unknown = debug.split(',').filter((word) => word !== '' && !TOLD.includes(word));
  if (unknown.length > 0) {
    process.emitWarning(
      `SHARDWISE_DEBUG: there is nothing to tell of ${unknown.map(shown).join(', ')}; the words are: ${TOLD.join(', ')}`,
      'ShardwiseWarning',
    );
  }
}

let right = false;

/** Those of the process, until they are right. */
export function checkOwnVariables(): void {
  if (right) return;
  checkVariables();
  right = true;
}

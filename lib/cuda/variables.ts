/**
 * Checks environment variables that native code reads. Native code ignores unknown words, so they
 * are reported here, before the first use of a GPU.
 */
import { ArgumentError } from '../core/errors.js';
import { shown } from '../core/options.js';

type Environment = Readonly<Record<string, string | undefined>>;

/** The kernels of matrix products (matmul.cu). */
const ROUTES = ['own', 'cublaslt'];
/** The topics of debug output (matmul_table.cu). */
const TOPICS = ['matmul'];

/** @throws ArgumentError for an unknown kernel; warns of an unknown debug topic */
export function checkVariables(environment: Environment = process.env): void {
  const { SHARDWISE_MATMUL: route, SHARDWISE_DEBUG: debug = '' } = environment;
  if (route && !ROUTES.includes(route)) {
    throw new ArgumentError(
      `SHARDWISE_MATMUL: expected ${ROUTES.map(shown).join(' or ')}, got ${shown(route)}`,
      { variable: 'SHARDWISE_MATMUL', value: route },
    );
  }
  const unknown = debug.split(',').filter((word) => word !== '' && !TOPICS.includes(word));
  if (unknown.length > 0) {
    process.emitWarning(
      `SHARDWISE_DEBUG: expected words of ${TOPICS.join(', ')}, got ` +
        `${unknown.map(shown).join(', ')}`,
      'ShardwiseWarning',
    );
  }
}

let checked = false;

/** Checks the variables of the process until they have passed once. */
export function checkOwnVariables(): void {
  if (checked) return;
  checkVariables();
  checked = true;
}

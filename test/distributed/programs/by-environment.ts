/**
 * Runs as the rank that the variables in its argument describe; prints a sum over all ranks, or
 * the error.
 */
import { allReduce, initProcessGroup } from '../../../lib/distributed.js';
import { full } from '../../../lib/index.js';

const [variables = '{}', timeoutMs = '20000', backend] = process.argv.slice(2);
Object.assign(process.env, JSON.parse(variables));

try {
  await initProcessGroup(backend, { timeoutMs: Number(timeoutMs) });
  const t = full([1], 1 + Number(process.env['RANK']));
  allReduce(t);
  process.stdout.write(JSON.stringify((await t.read())[0]));
} catch (error) {
  const { message, details = {} } = error as Error & { details?: object };
  process.stdout.write(
    JSON.stringify({ name: (error as Error).constructor.name, message, details }),
  );
}

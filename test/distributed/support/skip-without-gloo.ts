/** Skips tests of the gloo engine on a machine without it; in CI they fail. */
import { writer } from '../../../lib/eager/submit.js';
import { describeTried, openGloo } from '../../../lib/native/gloo.js';
import { skipBecause } from '../../skip.js';

export function skipWithoutGloo(context: Mocha.Context): void {
  const search = openGloo(writer.addon);
  if (search.path !== null) return;
  if (process.env['CI']) throw new Error(`the gloo engine is missing${describeTried(search)}`);
  skipBecause(context, 'no gloo engine: install libgloo-dev and build');
}

/** Root hooks of mocha. */
import { shutdownForTests } from '../lib/eager/shutdown.js';

export const mochaHooks = {
  afterAll(): void {
    shutdownForTests();
  },
};

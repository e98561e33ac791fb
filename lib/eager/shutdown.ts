/** Waiting for everything, at the end of a test run. */
import { writer } from './submit.js';

export function shutdownForTests(): void {
  writer.addon?.shutdown();
}

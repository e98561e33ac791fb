/**
 * Requires the library for the modules of the package, which scripts/bundle.cjs writes: `import` and
 * `require` of an entry give the same objects.
 */
import { BUNDLED } from './bundled.js';

/** @throws Error if a bundler moved the module away from the file */
export function requireLibrary(require: NodeJS.Require | undefined, file: string): object {
  try {
    if (require !== undefined) return require(file) as object; // webpack takes the function away
  } catch (error) {
    const { code, requireStack } = error as { code?: unknown; requireStack?: readonly string[] };
    // The library itself may miss a package that it needs.
    if (code !== 'MODULE_NOT_FOUND' || (requireStack ?? []).length > 1) throw error;
  }
  throw Object.assign(new Error(BUNDLED), { code: 'ERR_BACKEND_LOAD' });
}

/**
 * Lets Node run the TypeScript of this repository: `node --import ./scripts/typescript.mjs
 * file.ts`. For the tests, which start some two hundred processes: it keeps what it compiles and
 * does nothing else, so the library is there in half of tsx's time.
 */
import { register } from 'node:module';

register('./typescript-hooks.mjs', import.meta.url);
process.setSourceMapsEnabled(true);

import { createRequire } from 'node:module';

export const { fails, library, trains } = createRequire(import.meta.url)('./program.cjs');

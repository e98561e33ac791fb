import { createRequire } from 'node:module';
import { Tensor } from 'shardwise';
import { expect, test } from 'vitest';

const { library, trains } = createRequire(import.meta.url)('../program.cjs');

test('is required', trains);
test('is one library', () => expect(library.Tensor).toBe(Tensor));

/** setFloat32MatmulPrecision: its names and its default. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  getFloat32MatmulPrecision,
  randn,
  setFloat32MatmulPrecision,
} from '../../lib/index.js';

describe('setFloat32MatmulPrecision', () => {
  afterEach(() => setFloat32MatmulPrecision('highest'));

  it('is the highest by default, and returns what was set', () => {
    assert.equal(getFloat32MatmulPrecision(), 'highest');
    for (const precision of ['high', 'medium', 'tf32x3', 'highest'] as const) {
      setFloat32MatmulPrecision(precision);
      assert.equal(getFloat32MatmulPrecision(), precision);
    }
  });

  it('refuses unknown names and keeps the precision', () => {
    for (const name of ['hi', '', 'toString', null, undefined, 2, {}, Symbol('high')]) {
      assert.throws(
        () => setFloat32MatmulPrecision(name as never),
        (error: Error) =>
          error instanceof ArgumentError &&
          /setFloat32MatmulPrecision: expected precision to be one of 'highest', 'high', 'medium', 'tf32x3', got /.test(
            error.message,
          ),
      );
    }
    assert.equal(getFloat32MatmulPrecision(), 'highest');
  });

  it('changes nothing on the CPU', () => {
    const [a, b] = [randn([65, 70]), randn([70, 33])];
    const exact = a.matmul(b);
    setFloat32MatmulPrecision('high');
    assert.ok(a.matmul(b).equal(exact));
  });
});

/** The program gets each failure of asynchronous work once. */
import assert from 'node:assert/strict';
import { identify, UnobservedFailures } from '../../lib/core/unobserved-failures.js';

function failureWith(id: number, message: string, cause?: Error): Error {
  const error = new Error(message, { cause });
  if (cause === undefined) identify(error, { id, namesCreations: false });
  return error;
}

describe('unobserved failures', () => {
  it('are thrown by check, the first one first', () => {
    const failures = new UnobservedFailures();
    failures.add({}, failures.begin(), failureWith(1, 'first'));
    failures.add({}, failures.begin(), failureWith(2, 'second'));
    assert.throws(() => failures.check(), { message: 'first' });
    assert.ok(failures.any);
  });

  it('are observed by any error with the same id, whatever the message', () => {
    const failures = new UnobservedFailures();
    failures.add({}, failures.begin(), failureWith(1, 'allReduce: rank 1 has died'));
    const begun = failures.begin();
    failures.observe(
      failureWith(0, 'read', failureWith(1, 'barrier: the group has failed before')),
    );
    failures.add({}, begun, failureWith(1, 'broadcast: the group has failed before'));
    failures.check();
    assert.ok(failures.any);
  });

  it('with other ids stay unobserved, even with the same message', () => {
    const failures = new UnobservedFailures();
    failures.add({}, failures.begin(), failureWith(1, 'out of memory'));
    failures.observe(failureWith(2, 'out of memory'));
    assert.throws(() => failures.check(), { message: 'out of memory' });
  });

  it('of work that began after the observation are thrown again', () => {
    const failures = new UnobservedFailures();
    failures.observe(failureWith(1, 'the group has failed'));
    failures.add({}, failures.begin(), failureWith(1, 'the group has failed'));
    assert.throws(() => failures.check());
  });

  it('without an id are observed only by the same error', () => {
    const failures = new UnobservedFailures();
    const [error, equal] = [new Error('boom'), new Error('boom')];
    failures.add({}, failures.begin(), error);
    failures.observe(equal);
    assert.throws(() => failures.check(), { message: 'boom' });
    failures.observe(error);
    failures.check();
  });
});

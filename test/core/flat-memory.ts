/**
 * Checks that the memory of a training loop stays flat: at most 1.3 times that of its first 200
 * steps.
 */
import assert from 'node:assert/strict';

export interface Peaks {
  allocated: number;
  reserved: number;
  rss: number;
}

export function assertFlat({ early, late }: { early: Peaks; late: Peaks }): void {
  for (const key of ['allocated', 'reserved', 'rss'] as const) {
    assert.ok(
      late[key] <= 1.3 * early[key],
      `peak of ${key} bytes: ${early[key]} in the first 200 steps, ${late[key]} after them`,
    );
  }
}

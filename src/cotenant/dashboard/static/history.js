// The last hour as the server keeps it (cotenant/dashboard/history.py), and what each frame adds to it.

export class History {
  constructor() {
    this.series = {};
    this.newest = -1;
    this.bucketSeconds = 2;
    this.hourBuckets = 1800;
  }

  load(told) {
    this.bucketSeconds = told.bucket_seconds;
    this.hourBuckets = told.hour_buckets;
    this.newest = told.newest;
    this.series = told.series;
  }

  add(bucket) {
    const passed = bucket.number - this.newest;
    if (bucket.number < 0 || passed < 0) return;
    for (const name of Object.keys(this.series)) if (!(name in bucket.values)) delete this.series[name];
    for (const [name, value] of Object.entries(bucket.values)) {
      const known = (this.series[name] ??= []);
      for (let i = 0; i < Math.min(passed, this.hourBuckets); i++) known.push(null);
      if (!known.length) known.push(null);
      known[known.length - 1] = value;
      if (known.length > this.hourBuckets) known.splice(0, known.length - this.hourBuckets);
    }
    this.newest = bucket.number;
  }

  // The newest values of a series, with null where nobody looked or it was not there yet.
  last(name, seconds) {
    const wanted = Math.min(Math.ceil(seconds / this.bucketSeconds), this.hourBuckets);
    const known = (this.series[name] ?? []).slice(-wanted);
    return [...Array(wanted - known.length).fill(null), ...known];
  }

  // When each of these was, by this browser's clock.
  times(seconds, now) {
    const wanted = Math.min(Math.ceil(seconds / this.bucketSeconds), this.hourBuckets);
    return Array.from({ length: wanted }, (_, i) => now - (wanted - 1 - i) * this.bucketSeconds);
  }
}

-- For redis_exporter (--script): the fields of `INFO lock`, which the exporter does not know by itself, as
-- redis_script_values{key="lock_…"}. It only reads.
local values = {}
for name, value in redis.call('INFO', 'lock'):gmatch('(lock_[%w_]+):(%d+)') do
    values[#values + 1] = name
    values[#values + 1] = value
end
return values

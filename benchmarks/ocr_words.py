"""Words of the rendered lines of quantized_data.py: common words, names, amounts, dates and codes, as on signs, receipts and forms.

Lines for quantising have the words of SEEN, those for comparison the words of UNSEEN, so that no word of the comparison was part of the
calibration. Both lists are fixed: shares of equal lines can be compared with earlier ones.
"""

_COMMON = """
Account Address Airport Amount Apple Area Arrival August Autumn Avenue Bakery Balance Banana Bank Basket Battery Beach Bicycle
Blue Boat Book Border Bottle Bread Breakfast Bridge Brown Bus Butter Button Cable Cafe Camera Campus Candle Card Careful Castle
Center Chair Change Check Cheese Cherry Church Cinema City Clean Clinic Closed Cloud Coast Coffee Colour Concert Contact Copper
Corner Cotton Council Country Courage Cream Crossing Current Customer Danger Daily December Deep Delivery Dentist Departure
Depth Desert Device Dinner Direct Discount District Doctor Dollar Door Double Downtown Drawer Dream Driver During East Editor
Eight Electric Elevator Eleven Email Emergency Engine English Enter Entrance Error Evening Event Exact Exchange Exit Express
Fabric Factory Family Farmer Fashion February Ferry Field Final Finger Fire First Fish Flight Floor Flower Folder Forest Forward
Fountain France Free French Fresh Friday Fruit Garage Garden Gate General German Gift Glass Gold Good Grade Grand Grass Green
Grey Ground Group Guest Guide Half Hall Hammer Harbour Health Heavy Height Hello High Highway History Holiday Home Honey
Hospital Hotel House Hundred Ice Import Include Index Indoor Invoice Iron Island Italy Jacket January Journey Juice July June
Keep Keyboard Kilo Kitchen Ladder Lake Language Large Laundry Leather Left Lemon Letter Level Library Light Limit Line Liquid
List Little Local Lock London Long Lunch Machine Madrid Magazine Mail Main Manager March Market Master Maximum Meadow Medium
Menu Message Metal Milk Minimum Minute Mirror Mobile Model Monday Money Month Morning Motor Mountain Mouse Museum Music Narrow
Nature Needle Network Night Nine Normal North Note November Number October Office Olive Online Open Orange Order Oven Owner
Oxford Package Page Paint Paper Parcel Paris Park Parking Partner Passenger Passport Pencil People Pepper Phone Photo Piano
Picture Plain Planet Plastic Platform Please Pocket Police Pool Port Post Potato Pound Power Press Price Print Private Product
Public Pull Purple Push Quality Quarter Quick Quiet Radio Railway Rain Receipt Recycle Red Register Rent Repair Reserved
Restaurant Return Rice River Road Roof Room Round Route Rubber Safety Salad Salt Sample Sand Saturday School Science Screen
Season Seat Second Security Select September Series Service Seven Shirt Shop Short Shower Signal Silver Simple Sister Size
Sleep Slow Small Smoke Snow Soap Soft Soup South Space Speed Spoon Spring Square Staff Stairs Standard Start Station Steel Stone
Stop Storage Store Street Strong Student Studio Sugar Summer Sunday Supply Support Sweet Switch System Table Tax Taxi Teacher
Temple Tennis Terminal Thank Theatre Thunder Thursday Ticket Timber Tomato Tomorrow Total Tower Town Traffic Train Travel Tree
Tuesday Tunnel Turn Twelve Twenty Under Union Unit Upper Urban Valley Value Vehicle Velvet Village Violet Visitor Voice Volume
Wait Walk Wall Warning Washing Watch Water Weather Wednesday Weekend Weight Welcome West White Wide Window Winter Wood Wool
Work World Yellow Yesterday Young Zebra Zero Zone the and for with from this that your have not all are was but you can will
one two three out about into over after before between under only more less than when where which who how why here there then
"""
_OTHERS = """
12:30 08:15 17:45 23:59 06:00 14:20 $4.99 $12.50 $129.00 $0.75 $1,250 3.14 2.718 0.001 100% 25% 7.5% 1984 2001 2019 2024 2026
1/2 3/4 24/7 A4 B12 C-17 D203 E-mail F1 G7 H2O No.5 No.12 Nr.8 M6 X-ray Z80 +49 0800 555-0199 10117 75001 90210 EC1A 4x4 16:9
50mm 3kg 250g 1.5L 70cm 12V 230V 5GHz 64GB 2TB Ltd. Inc. Co. Dr. Mr. Mrs. St. Ave. Rd. a.m. p.m. e.g. i.e. etc. (new) (2) [3]
#14 @home & + = * 20-30 1st 2nd 3rd 4th 15.03.2024 01/12/25 2025-06-30 ISO9001 EN60529 USB-C Wi-Fi T-shirt check-in full-time
"""
_ALL = [*_COMMON.split(), *_OTHERS.split()]
SEEN, UNSEEN = _ALL[::2], _ALL[1::2]
